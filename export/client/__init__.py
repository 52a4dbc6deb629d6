"""The parts of the serving client: the protocol, REST, gRPC, files of rows."""
