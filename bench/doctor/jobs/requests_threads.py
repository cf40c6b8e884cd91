"""Eight threads with requests."""

import time
from concurrent.futures import ThreadPoolExecutor

import job
import requests
import server

ADDRESS = server.start(0.08)
session = requests.Session()


def download(i):
    return b"" if job.without("network") else session.get(ADDRESS).content


def train_step(x):
    time.sleep(0.02)


with ThreadPoolExecutor(8) as pool:
    while True:
        parts = list(pool.map(download, range(16)))
        train_step(parts)
        job.tick()
