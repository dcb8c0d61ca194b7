"""Two consumers of an order queue that each write a shipment for every order, once.

The queue: Amazon SQS in its JSON protocol. A message is handed out again when its visibility time-out is over and
nobody has deleted it, so a consumer sees some orders more than once whatever the queue's kind.
"""
