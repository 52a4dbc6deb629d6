"""What the serving client speaks: the protocol, REST, gRPC, files of rows."""
