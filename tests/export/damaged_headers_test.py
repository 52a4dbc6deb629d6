"""A server that sends lines without a colon among its headers: no traceback in the log."""

import socket
import threading

from export.serving_rest import RestTransport

BODY = b'{"model_version_status": []}'
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nno colon\r\nA: b\r\n\r\n" + BODY


def test_damaged_headers_are_one_line(caplog):
    def answer() -> None:
        connection, _ = listener.accept()
        with connection:
            connection.recv(1 << 16)
            connection.sendall(ANSWER)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        port = listener.getsockname()[1]
        assert RestTransport(f"http://127.0.0.1:{port}", "made-up", -1, 5.0, 0).status() == []
        thread.join()
    (record,) = [record for record in caplog.records if record.name.startswith("urllib3")]
    assert not record.exc_info and not record.exc_text
    assert "\n" not in record.getMessage()
