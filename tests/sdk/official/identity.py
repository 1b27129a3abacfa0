"""An identity provider for these tests, in place of Microsoft Entra ID. It signs access tokens,
and it answers like the managed identity of a machine in Azure, which SDKs use if the
environment names it."""

import base64
import hashlib
import json
import secrets
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

ISSUER = "https://issuer.test/"
AUDIENCE = "https://servicebus.azure.net"
ROLE = "Bus.Owner"
KEY_ID = "1"
PUBLIC_EXPONENT = 65537
# Prefix of a SHA-256 digest in a signature (RFC 8017, 9.2).
DIGEST_INFO = bytes.fromhex("3031300d060960864801650304020105000420")
LIFETIME_SECONDS = 3600


def configuration(keys_file):
    """The part of the broker's configuration that accepts these tokens."""
    return f"""
[security]
allow_anonymous = false

[security.jwt]
issuer = "{ISSUER}"
audiences = ["{AUDIENCE}"]
jwks_file = "{keys_file}"
algorithms = ["RS256"]

[[security.jwt.roles]]
name = "{ROLE}"
rights = ["Send", "Listen", "Manage"]
"""


def is_prime(candidate):
    """Whether it passes 40 rounds of Miller and Rabin."""
    odd, twos = candidate - 1, 0
    while odd % 2 == 0:
        odd, twos = odd // 2, twos + 1
    for _ in range(40):
        power = pow(secrets.randbelow(candidate - 3) + 2, odd, candidate)
        if power in (1, candidate - 1):
            continue
        for _ in range(twos - 1):
            power = power * power % candidate
            if power == candidate - 1:
                break
        else:
            return False
    return True


def prime(bits):
    while True:
        candidate = secrets.randbits(bits) | 3 << (bits - 2) | 1
        if all(candidate % small for small in (3, 5, 7, 11, 13, 17, 19)) and is_prime(candidate):
            if candidate % PUBLIC_EXPONENT != 1:
                return candidate


def encoded(value):
    """Base64 for URLs of bytes, a number, or a JSON value."""
    if isinstance(value, int):
        value = value.to_bytes((value.bit_length() + 7) // 8, "big")
    if not isinstance(value, bytes):
        value = json.dumps(value).encode()
    return base64.urlsafe_b64encode(value).rstrip(b"=").decode()


def new_key():
    """An RSA key of 2,048 bits."""
    one, other = prime(1024), prime(1024)
    return one * other, pow(PUBLIC_EXPONENT, -1, (one - 1) * (other - 1))


class Provider:
    """Signs with a key, which is a modulus and a private exponent."""

    def __init__(self, modulus, exponent):
        self.modulus = modulus
        self.exponent = exponent

    def keys(self):
        """The JWK set for the broker."""
        key = {"kty": "RSA", "kid": KEY_ID, "alg": "RS256", "use": "sig"}
        return json.dumps({"keys": [{**key, "n": encoded(self.modulus), "e": encoded(PUBLIC_EXPONENT)}]})

    def token(self):
        """An access token with all rights, and its expiry time."""
        now = int(time.time())
        ends = now + LIFETIME_SECONDS
        claims = {"iss": ISSUER, "aud": AUDIENCE, "sub": "tests", "iat": now, "nbf": now, "exp": ends, "roles": [ROLE]}
        signed = f"{encoded({'alg': 'RS256', 'typ': 'JWT', 'kid': KEY_ID})}.{encoded(claims)}"
        padded = DIGEST_INFO + hashlib.sha256(signed.encode()).digest()
        padded = b"\0\1" + b"\xff" * (256 - 3 - len(padded)) + b"\0" + padded
        signature = pow(int.from_bytes(padded, "big"), self.exponent, self.modulus).to_bytes(256, "big")
        return f"{signed}.{encoded(signature)}", ends

    def command(self, folder):
        """Writes a program `az` that prints a token, like the Azure command line, which older SDKs
        call."""
        token, ends = self.token()
        expires_on = time.strftime("%Y-%m-%d %H:%M:%S.000000", time.localtime(ends))
        told = {"accessToken": token, "expiresOn": expires_on, "expires_on": ends, "tokenType": "Bearer"}
        folder.mkdir()
        (folder / "token.json").write_text(json.dumps(told))
        (folder / "az").write_text(f"#!/bin/sh\ncat '{folder}/token.json'\n")
        (folder / "az").chmod(0o755)

    def serve(self):
        """Answers like a managed identity. Returns the environment that directs SDKs to it."""
        provider = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                token, ends = provider.token()
                answer = {"access_token": token, "expires_on": str(ends), "token_type": "Bearer", "resource": AUDIENCE}
                body = json.dumps(answer).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_address[1]}/token"
        return {"IDENTITY_ENDPOINT": url, "IDENTITY_HEADER": "tests", "AZURE_TOKEN_CREDENTIALS": "ManagedIdentityCredential"}
