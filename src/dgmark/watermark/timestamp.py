"""Time stamps (RFC 3161): an authority's signed word that a digest existed at a time. Checks them; asks nobody."""

from datetime import UTC, datetime, timedelta

from dgmark.errors import CommitmentMismatch, InputError, MissingExtra
from dgmark.extras import install_hint

# how far the clocks of this machine and of an authority may differ
_CLOCKS = timedelta(minutes=5)


def stamped_at(sha256: str, response: bytes, authorities: bytes) -> datetime:
    """When a digest existed at the latest, by a time stamp over it.

    Args:
        sha256: the digest, in hexadecimal: that of a commitment.
        response: the authority's response (DER), with its certificate in it.
        authorities: the certificates that are trusted (PEM), valid when the time stamp was made.

    Raises:
        CommitmentMismatch: the time stamp is over another digest, of none of these authorities, or dated in the future.
        InputError: the response or the certificates cannot be read.
        MissingExtra: rfc3161-client is not installed.
    """
    try:
        from cryptography.x509 import load_pem_x509_certificates
        from rfc3161_client import VerificationError, VerifierBuilder, decode_timestamp_response
    except ModuleNotFoundError as error:
        raise MissingExtra(f"time stamps need rfc3161-client: {install_hint('timestamp')}") from error
    try:
        roots = load_pem_x509_certificates(authorities)
    except ValueError as error:
        raise InputError("these are not certificates in PEM: give those that the authority publishes") from error
    try:
        stamp = decode_timestamp_response(_with_sorted_certificates(response))
        VerifierBuilder(roots=roots).build().verify(stamp, bytes.fromhex(sha256))
        stamped = stamp.tst_info.gen_time
    except (ValueError, VerificationError) as error:
        raise CommitmentMismatch(
            f"the time stamp does not hold for this commitment ({error}): it is over another one, not of these "
            "authorities, or was asked for without their certificate (`openssl ts -query -cert`)"
        ) from error
    if stamped > datetime.now(UTC) + _CLOCKS:
        raise CommitmentMismatch(
            f"the time stamp is dated {stamped:%Y-%m-%d %H:%M:%S} UTC, which is in the future by this machine's clock: "
            "set the clock, or do not trust this authority"
        )
    return stamped


def _with_sorted_certificates(response: bytes) -> bytes:
    """The response with its certificates in the order of DER, which OpenSSL does not keep and the parser asks for.

    No signature covers their order. What is no time stamp stays as it is, for the parser to refuse.
    """
    try:
        place = (0, 0, len(response))
        for number in (0, 1, 1, 0):  # the response, its token, the token's content, the signed data in it
            place = _elements(response, place)[number]
        certificates = next(one for one in _elements(response, place) if response[one[0]] == 0xA0)
        _, start, end = certificates
        each = sorted(response[first:last] for first, _, last in _elements(response, certificates))
    except (IndexError, StopIteration):
        return response
    return response[:start] + b"".join(each) + response[end:]


def _elements(der: bytes, place: tuple[int, int, int]) -> list[tuple[int, int, int]]:
    """The elements in an element of DER: where each starts, where its content starts, and where it ends.

    Raises:
        IndexError: an element goes on behind its place.
    """
    _, start, end = place
    found = []
    while start < end:
        length, content = der[start + 1], start + 2
        if length >= 0x80:  # then it says how many bytes the length takes
            content += length - 0x80
            length = int.from_bytes(der[start + 2 : content])
        if content + length > end:
            raise IndexError
        found.append((start, content, content + length))
        start = content + length
    return found
