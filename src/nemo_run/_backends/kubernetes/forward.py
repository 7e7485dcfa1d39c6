"""A port of this machine that leads to one of a pod, over the API server."""

from __future__ import annotations

import contextlib
import logging
import socket
import struct
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager

from nemo_run._backends.kubernetes.exec import PROTOCOL
from nemo_run._backends.kubernetes.rest import Kube
from nemo_run._transport.listener import listening
from nemo_run._transport.websocket import HandshakeError, WebSocket
from nemo_run.exceptions import BackendError

log = logging.getLogger(__name__)

_DATA, _ERROR = 0, 1
_BLOCK = 1 << 16
_SEND_S = 60.0
_SILENCE_S = 3600.0


def forwarded(
    kube: Kube, pod: Callable[[], str], port: int, *, local_port: int
) -> AbstractContextManager[None]:
    """Have ``local_port`` of loopback lead to a port of a pod while entered.

    ``pod`` is asked for the pod's name for every connection: it may be another one by then.
    Entering raises BackendError where the local port is taken.
    """
    return listening(
        local_port,
        lambda near: _serve(near, kube, pod, port),
        target=f"port {port} of a pod",
        backend=kube.http.backend,
    )


def _serve(near: socket.socket, kube: Kube, pod: Callable[[], str], port: int) -> None:
    try:
        far = _connected(kube, pod(), port)
    except (BackendError, HandshakeError, OSError) as err:
        log.warning("port %d of the pod cannot be reached now: %s", port, err)
        return
    try:
        back = threading.Thread(target=_receive, args=(far, near, port), daemon=True)
        back.start()
        _send(near, far)
        back.join()
    finally:
        far.close()


def _connected(kube: Kube, pod: str, port: int) -> WebSocket:
    way = kube.http.way()
    url = f"{way.url}{kube.path('pods', pod, below='portforward')}?ports={port}"
    return WebSocket(url, protocol=PROTOCOL, headers=way.headers, route=way.route)


def _send(near: socket.socket, far: WebSocket) -> None:
    with contextlib.suppress(OSError):
        while data := near.recv(_BLOCK):
            far.send(bytes([_DATA]) + data, timeout_s=_SEND_S)
    # The protocol cannot say that one direction has ended.
    far.close()


def _receive(far: WebSocket, near: socket.socket, port: int) -> None:
    # On each of its two channels the server first says which port it is.
    unsaid = {_DATA, _ERROR}
    number = struct.pack("<H", port)
    with contextlib.suppress(OSError):
        while (message := far.receive(timeout_s=_SILENCE_S)) is not None:
            channel, data = message[0], message[1:]
            if channel in unsaid and data[:2] == number:
                unsaid.discard(channel)
                data = data[2:]
            if channel == _DATA and data:
                near.sendall(data)
            elif channel == _ERROR and data:
                log.warning("port %d of the pod: %s", port, data[:200].decode("utf-8", "replace"))
                break
    with contextlib.suppress(OSError):
        near.shutdown(socket.SHUT_RDWR)
