"""Time stamps (RFC 3161): an authority's signed word that a digest existed at a time. Checks them; asks nobody."""

from datetime import datetime

from dgmark.errors import CommitmentMismatch, InputError, MissingExtra
from dgmark.extras import install_hint


def stamped_at(sha256: str, response: bytes, authorities: bytes) -> datetime:
    """When a digest existed at the latest, by a time stamp over it.

    Args:
        sha256: the digest, in hexadecimal: that of a commitment.
        response: the authority's response (DER), with its certificate in it.
        authorities: the certificates that are trusted (PEM), valid when the time stamp was made.

    Raises:
        CommitmentMismatch: the time stamp is over another digest, or of none of these authorities.
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
        stamp = decode_timestamp_response(response)
        VerifierBuilder(roots=roots).build().verify(stamp, bytes.fromhex(sha256))
        return stamp.tst_info.gen_time
    except (ValueError, VerificationError) as error:
        raise CommitmentMismatch(
            f"the time stamp does not hold for this commitment ({error}): it is over another one, not of these "
            "authorities, or was asked for without their certificate (`openssl ts -query -cert`)"
        ) from error
