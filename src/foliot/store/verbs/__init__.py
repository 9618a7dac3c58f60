"""What the verbs of the store do, in the words of named queries: one code for all engines.

An engine brings its dialect of the queries and its transactions (`transaction.Transaction`); it may do a verb in its
own way where that is much faster, and is held to the same contract. Nothing here knows a driver. The functions are
coroutines because a server must be waited for; an embedded engine never suspends, and is driven to the end at once.
"""
