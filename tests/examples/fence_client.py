import sys
import urllib.error
import urllib.request

import redlock


def put(text: str, fence: int) -> None:
    url = f"http://127.0.0.1:{sys.argv[1]}/report"
    request = urllib.request.Request(url, text.encode(), {"Fence": str(fence)}, method="PUT")
    urllib.request.urlopen(request).close()  # HTTPError 409 if a later holder has written


with redlock.lock("report") as lock:
    put("the newest report", lock.fence)
    try:
        put("the report of a holder that comes too late", lock.fence - 1)
    except urllib.error.HTTPError as error:
        print("refused:", error.code)
