"""From handed-off work to a recorded outcome.

    handler     a registered function: how it is called, and what its class of work chose
    arguments   a payload is a JSON object of keyword arguments, checked against the function's signature
    context     what a job sees of its run
    attempt     one claimed attempt in this process
    execute     the pipeline over one attempt: start, decode, perform, classify
    outbox      what the store must still hear of; nothing in it is ever lost while the process lives
    worker      claims, begins, watches deadlines; one `run_once()` under a thin loop
    heartbeat   says that the worker lives, from a thread of its own
    drain       ends a worker in order

This room must not decide when work is due (dispatch), nor declare an attempt lost (watch), and it knows no concrete
store. It sees the standard library, msgspec, foliot.domain, foliot.clock and foliot.errors only.
"""
