"""Sources of streams. `mqtt_client` and `mqtt_spool` do not import pyspark, so a client can run without a session."""
