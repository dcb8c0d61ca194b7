"""The seams of libraries that come with the plugin. A further one is a module here and a line in the list."""

from __future__ import annotations

from pytest_once.boundaries.aiohttp import AIOHTTP
from pytest_once.boundaries.asyncpg import ASYNCPG
from pytest_once.boundaries.http_client import HTTP_CLIENT, URLLIB3
from pytest_once.boundaries.httpx import HTTPX, HTTPX2
from pytest_once.boundaries.psycopg import PSYCOPG
from pytest_once.boundaries.redis import REDIS
from pytest_once.boundaries.seam import Seam
from pytest_once.boundaries.smtp import SMTP
from pytest_once.boundaries.subprocess import PROCESSES

BUILT_IN: tuple[Seam, ...] = (HTTPX, HTTPX2, HTTP_CLIENT, URLLIB3, AIOHTTP, SMTP, PROCESSES, PSYCOPG, ASYNCPG, REDIS)
"""Installed in this order; no two hook the same object."""
