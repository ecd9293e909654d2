"""`python -m kafka_share_proxy` is `kafka-share-proxy`."""

from kafka_share_proxy.app.command_line import main

if __name__ == "__main__":
    main()
