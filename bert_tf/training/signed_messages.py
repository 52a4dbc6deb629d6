"""Signs the messages between workers with a secret that all workers of a run share.

A worker proves that it has the secret without sending it: each side draws a random number, and the
key of the connection is derived from both numbers and the secret. A signature covers the direction
and the sequence number of a message, so that messages cannot be reflected, replayed or dropped.
Messages are not encrypted.
"""

import hashlib
import hmac
import secrets

MAC_CHARACTERS = 2 * hashlib.sha256().digest_size
_PROOF = b"bert_tf proof of worker 0"
_KEY = b"bert_tf key of a connection"


def new_nonce() -> str:
    """Returns a random number for one connection."""
    return secrets.token_hex(32)


def proof(secret: bytes, caller: str, receiver: str) -> str:
    """Returns the proof for the caller that worker 0 has the secret.

    Args:
      secret: the run's secret.
      caller: random number of the connecting worker.
      receiver: random number of worker 0.
    """
    return _mac(secret, _PROOF, caller.encode(), receiver.encode())


def is_proof(given: str, secret: bytes, caller: str, receiver: str) -> bool:
    """Returns whether `given` is the proof for these random numbers."""
    return _is_equal(given, proof(secret, caller, receiver))


class MessageSigner:
    """Signs and checks the messages of one connection, in order.

    Args:
      secret: the run's secret.
      caller: random number of the connecting worker.
      receiver: random number of worker 0.
      is_caller: whether this is the connecting side.
    """

    def __init__(self, secret: bytes, caller: str, receiver: str, is_caller: bool) -> None:
        # Both sides contribute a random number, so that no earlier connection can be replayed.
        self._key = bytes.fromhex(_mac(secret, _KEY, caller.encode(), receiver.encode()))
        self._sends = b"0" if is_caller else b"1"
        self._receives = b"1" if is_caller else b"0"
        self._num_sent = 0
        self._num_received = 0

    def sign(self, content: bytes) -> bytes:
        """Returns a message with its signature in front."""
        mac = _mac(self._key, self._sends, b"%d" % self._num_sent, content)
        self._num_sent += 1
        return mac.encode() + b" " + content

    def check(self, line: bytes) -> bytes:
        """Checks a signed message and returns its content.

        Raises:
          ValueError: if the signature is not that of the other side's next message.
        """
        given = line[:MAC_CHARACTERS]
        content = line[MAC_CHARACTERS + 1 :]
        expected = _mac(self._key, self._receives, b"%d" % self._num_received, content)
        if not _is_equal(given.decode("latin1"), expected):
            raise ValueError("The signature of a message is wrong.")
        self._num_received += 1
        return content


def _mac(key: bytes, *parts: bytes) -> str:
    """Returns the signature of several parts, which are separated by their lengths."""
    message = b"".join(b"%d:%s" % (len(part), part) for part in parts)
    return hmac.new(key, message, hashlib.sha256).hexdigest()


def _is_equal(given: str, expected: str) -> bool:
    """Compares in constant time; `given` may be any text."""
    return hmac.compare_digest(given.encode("utf8", "replace"), expected.encode())
