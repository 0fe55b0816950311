"""A model over HTTP, with a journal so that nothing acknowledged is lost.

`driftree serve model.dmt` starts it (extra ``serve``); `docs/serve.md` has the guarantees.
"""
