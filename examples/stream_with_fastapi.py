"""Write marked text over HTTP as it is written: `uvicorn stream_with_fastapi:app`, then open /write?prompt=Once.

`dgmark serve` does this with OpenAI's interface, batches, tokens and limits; this is the smallest way into an app.
"""

import os

from fastapi import FastAPI
from fastapi.responses import StreamingResponse

import dgmark

key = dgmark.WatermarkKey.load(os.environ.get("KEY", "key.json"))  # of `dgmark keygen key.json`
model = dgmark.load_model("storyteller")
app = FastAPI()


@app.get("/write")
def write(prompt: str, length: int = 128) -> StreamingResponse:
    """A marked text in pieces that can be read without a gap."""
    pieces = dgmark.stream_text(model, prompt, key=key, length=length, block_length=16, temperature=0.5)
    return StreamingResponse(pieces, media_type="text/plain; charset=utf-8")
