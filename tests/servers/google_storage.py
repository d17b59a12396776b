"""A server of Google Cloud Storage's XML API, in this process and in memory.

It was written for these tests from Google's reference of the XML API, because emulators have only the JSON API and
`obstore` sends XML. It has the objects, listings, conditions by generation, copies, multipart uploads and errors that
this client needs. It issues tokens like the metadata server of a machine, and verifies the JWTs of a service account.
"""

from __future__ import annotations

import base64
import contextlib
import email.utils
import hashlib
import json
import re
import threading
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar
from urllib.parse import parse_qs, unquote, urlsplit
from xml.etree import ElementTree
from xml.sax.saxutils import escape

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from tests.servers.process import Server

_EMAIL = "ingest@project.iam.gserviceaccount.com"
_LEAST_PART_BYTES = 5 << 20
_META = "x-goog-meta-"
_Answer = tuple[int, dict[str, str], bytes]
"""Status, headers and body."""


@dataclass
class _Object:
    data: bytes
    metadata: Mapping[str, str]
    etag: str
    generation: int
    modified_s: float


@dataclass
class _Upload:
    key: str
    metadata: Mapping[str, str]
    parts: dict[int, bytes] = field(default_factory=dict)


@dataclass
class _Bucket:
    objects: dict[str, _Object] = field(default_factory=dict)
    uploads: dict[str, _Upload] = field(default_factory=dict)


class _RejectedError(Exception):
    def __init__(self, status: int, code: str) -> None:
        super().__init__(code)
        self.status, self.code = status, code


class GoogleStorageServer(Server):
    """Server with one service account; tests create the buckets.

    Attributes:
        forbidden: methods that the identity has no permission for.
        is_rate_limited: whether an object may be written once a second only, as Google limits it.
        token_lifetime_s: lifetime of tokens of the metadata server.
        tokens: issued tokens of the metadata server, with their end.
    """

    def _start(self, stack: contextlib.ExitStack) -> None:
        self.forbidden: set[str] = set()
        self.is_rate_limited = False
        self.token_lifetime_s = 3600.0
        self.tokens: dict[str, float] = {}
        self._key = _new_key()
        self._buckets: dict[str, _Bucket] = {}
        self._generation = time.time_ns() // 1000
        self._one_at_a_time = threading.Lock()
        server = stack.enter_context(
            ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"storage": self}))
        )
        self._port = server.server_port
        stack.callback(server.shutdown)
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()

    @property
    def port(self) -> int:
        """Return the server's port."""
        return self._port

    @property
    def environment(self) -> dict[str, str]:
        """Return the environment variables for a client with a service account's key."""
        return {
            "GOOGLE_BASE_URL": f"http://127.0.0.1:{self._port}",
            "GOOGLE_SERVICE_ACCOUNT_KEY": _key_file(self._key),
        }

    def revoked_key(self) -> str:
        """Return a key file that the server rejects."""
        return _key_file(_new_key())

    def make_bucket(self) -> str:
        """Create a bucket, and return its name."""
        name = f"bucket-{uuid.uuid4().hex[:16]}"
        self._buckets[name] = _Bucket()
        return name

    def uploads(self, bucket: str) -> int:
        """Return the number of multipart uploads that were neither completed nor aborted."""
        return len(self._buckets[bucket].uploads)

    def issue_token(self) -> dict[str, object]:
        """Return the metadata server's response to a request for a token."""
        token = uuid.uuid4().hex
        self.tokens[token] = time.time() + self.token_lifetime_s
        return {"access_token": token, "expires_in": int(self.token_lifetime_s), "token_type": "Bearer"}

    def admit(self, method: str, authorization: str) -> None:
        """Raise an error unless the request is authorized."""
        token = authorization.removeprefix("Bearer ")
        if self.tokens.get(token, 0) < time.time() and not self._is_signed(token):
            raise _RejectedError(401, "AuthenticationRequired")
        if method in self.forbidden:
            raise _RejectedError(403, "AccessDenied")

    def _is_signed(self, token: str) -> bool:
        signed, _, signature = token.rpartition(".")
        try:
            self._key.public_key().verify(_decoded(signature), signed.encode(), padding.PKCS1v15(), hashes.SHA256())
        except (InvalidSignature, ValueError):
            return False
        claims = json.loads(_decoded(signed.partition(".")[2]))
        return bool(claims["iss"] == _EMAIL and claims["exp"] > time.time())

    def handle(self, method: str, target: str, headers: Mapping[str, str], body: bytes) -> _Answer:
        """Execute one request."""
        url = urlsplit(target)
        name, _, key = unquote(url.path).lstrip("/").partition("/")
        query = {name: values[0] for name, values in parse_qs(url.query, keep_blank_values=True).items()}
        with self._one_at_a_time:
            if name not in self._buckets:
                raise _RejectedError(404, "NoSuchBucket")
            bucket = self._buckets[name]
            if "uploads" in query or "uploadId" in query:
                return self._handle_upload(bucket, method, key, query, headers, body)
            match method:
                case "GET" if not key:
                    return 200, {}, _listed(bucket, query)
                case "GET" | "HEAD":
                    return _read(_existing(bucket, key), headers.get("range"))
                case "DELETE":
                    _existing(bucket, key)
                    del bucket.objects[key]
                    return 204, {}, b""
                case "PUT":
                    return self._handle_put(bucket, key, headers, body)
            raise _RejectedError(400, "InvalidArgument")

    def _handle_put(self, bucket: _Bucket, key: str, headers: Mapping[str, str], body: bytes) -> _Answer:
        present = bucket.objects.get(key)
        required = headers.get("x-goog-if-generation-match")
        if required is not None and int(required) != (present.generation if present else 0):
            raise _RejectedError(412, "PreconditionFailed")
        metadata: Mapping[str, str] = _metadata_of(headers)
        source = headers.get("x-goog-copy-source")
        if source is not None:
            name, _, source_key = unquote(source).lstrip("/").partition("/")
            copied = _existing(self._buckets[name], source_key)
            body, metadata = copied.data, copied.metadata  # the default of x-goog-metadata-directive is COPY
        put = self._write(bucket, key, body, metadata, hashlib.md5(body).hexdigest())
        return 200, _headers_of(put), _xml("CopyObjectResult", ETag=put.etag) if source else b""

    def _write(self, bucket: _Bucket, key: str, data: bytes, metadata: Mapping[str, str], etag: str) -> _Object:
        present = bucket.objects.get(key)
        if self.is_rate_limited and present is not None and time.time() - present.modified_s < 1:
            raise _RejectedError(429, "RateLimitExceeded")
        self._generation += 1
        bucket.objects[key] = _Object(data, metadata, etag, self._generation, time.time())
        return bucket.objects[key]

    def _handle_upload(
        self, bucket: _Bucket, method: str, key: str, query: Mapping[str, str], headers: Mapping[str, str], body: bytes
    ) -> _Answer:
        if "uploads" in query:
            upload_id = uuid.uuid4().hex
            bucket.uploads[upload_id] = _Upload(key, _metadata_of(headers))
            return 200, {}, _xml("InitiateMultipartUploadResult", Key=key, UploadId=upload_id)
        upload_id = query["uploadId"]
        upload = bucket.uploads.get(upload_id)
        if upload is None or upload.key != key:
            raise _RejectedError(404, "NoSuchUpload")
        match method:
            case "PUT":
                upload.parts[int(query["partNumber"])] = body
                return 200, {"ETag": f'"{hashlib.md5(body).hexdigest()}"'}, b""
            case "DELETE":
                del bucket.uploads[upload_id]
                return 204, {}, b""
        parts = []
        for part in ElementTree.fromstring(body).findall("{*}Part"):
            parts.append(upload.parts.get(int(part.findtext("{*}PartNumber") or 0), b""))
            if hashlib.md5(parts[-1]).hexdigest() != (part.findtext("{*}ETag") or "").strip('"'):
                raise _RejectedError(400, "InvalidPart")
        if any(len(part) < _LEAST_PART_BYTES for part in parts[:-1]):
            raise _RejectedError(400, "EntityTooSmall")
        etag = f"{hashlib.md5(b''.join(hashlib.md5(part).digest() for part in parts)).hexdigest()}-{len(parts)}"
        put = self._write(bucket, key, b"".join(parts), upload.metadata, etag)
        del bucket.uploads[upload_id]
        return 200, _headers_of(put), _xml("CompleteMultipartUploadResult", Key=key, ETag=f'"{put.etag}"')


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    storage: ClassVar[GoogleStorageServer]

    def do_GET(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.path.startswith("/computeMetadata/"):
            self._send(200, {}, json.dumps(self.storage.issue_token()).encode())
            return
        headers = {name.lower(): value for name, value in self.headers.items()}
        try:
            self.storage.admit(self.command, headers.get("authorization", ""))
            self._send(*self.storage.handle(self.command, self.path, headers, body))
        except _RejectedError as error:
            self._send(error.status, {}, _xml("Error", Code=error.code, Message="The request was rejected."))

    do_DELETE = do_HEAD = do_POST = do_PUT = do_GET  # noqa: N815

    def _send(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


def _existing(bucket: _Bucket, key: str) -> _Object:
    if key not in bucket.objects:
        raise _RejectedError(404, "NoSuchKey")
    return bucket.objects[key]


def _read(found: _Object, requested: str | None) -> _Answer:
    size, headers = len(found.data), _headers_of(found)
    if requested is None:
        return 200, headers, found.data
    bounds = re.fullmatch(r"bytes=(\d*)-(\d*)", requested)
    if bounds is None or not any(bounds.groups()):
        raise _RejectedError(400, "InvalidArgument")
    first = int(bounds[1]) if bounds[1] else max(0, size - int(bounds[2]))
    last = min(size - 1, int(bounds[2])) if bounds[1] and bounds[2] else size - 1
    if first > last:
        raise _RejectedError(416, "InvalidRange")
    return 206, {**headers, "Content-Range": f"bytes {first}-{last}/{size}"}, found.data[first : last + 1]


def _listed(bucket: _Bucket, query: Mapping[str, str]) -> bytes:
    prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
    after = max(query.get("continuation-token", ""), query.get("start-after", ""))
    limit, entries, names = int(query.get("max-keys", 1000)), "", list[str]()
    for key in sorted(bucket.objects):
        end = key.find(delimiter, len(prefix)) if delimiter else -1
        name = key if end < 0 else key[: end + len(delimiter)]
        if not key.startswith(prefix) or name <= after or name in names[-1:]:
            continue
        if len(names) == limit:
            entries += f"<NextContinuationToken>{escape(names[-1])}</NextContinuationToken>"
            break
        names.append(name)
        if end >= 0:
            entries += f"<CommonPrefixes><Prefix>{escape(name)}</Prefix></CommonPrefixes>"
            continue
        found = bucket.objects[key]
        modified = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(found.modified_s))
        entries += f"<Contents><Key>{escape(key)}</Key><Size>{len(found.data)}</Size><ETag>{found.etag}</ETag>"
        entries += f"<LastModified>{modified}.349Z</LastModified></Contents>"
    return f"<ListBucketResult><Prefix>{escape(prefix)}</Prefix>{entries}</ListBucketResult>".encode()


def _metadata_of(headers: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name.startswith(_META)}


def _headers_of(put: _Object) -> dict[str, str]:
    modified, etag = email.utils.formatdate(put.modified_s, usegmt=True), f'"{put.etag}"'
    return {"ETag": etag, "x-goog-generation": str(put.generation), "Last-Modified": modified, **put.metadata}


def _xml(root: str, **texts: str) -> bytes:
    inner = "".join(f"<{name}>{escape(text)}</{name}>" for name, text in texts.items())
    return f"<?xml version='1.0' encoding='UTF-8'?><{root}>{inner}</{root}>".encode()


def _decoded(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def _new_key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


def _key_file(key: rsa.RSAPrivateKey) -> str:
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    account = {"type": "service_account", "client_email": _EMAIL, "private_key_id": "1", "private_key": pem.decode()}
    return json.dumps(account)
