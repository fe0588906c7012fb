//! Sans-IO engine: descriptor rings, queues, op table, receive registry.
