"""A slow HTTP service: a tenth of a second for each rate. Usage: service.py [PORT]"""

import asyncio
import sys

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

RATES = {"USD": 1.17, "JPY": 172.4, "CHF": 0.94}


async def rate(request: Request) -> JSONResponse:
    """The rate of a currency."""
    await asyncio.sleep(0.1)
    currency = request.path_params["currency"]
    if currency not in RATES:
        return JSONResponse({"error": f"no rate of {currency}"}, status_code=404)
    return JSONResponse({"rate": RATES[currency]})


app = Starlette(routes=[Route("/rates/{currency}", rate)])

if __name__ == "__main__":
    uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]) if len(sys.argv) > 1 else 8099, log_level="warning")
