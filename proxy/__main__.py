"""`python -m proxy` is `kafka-share-proxy`."""

from proxy.app.cli import main

if __name__ == "__main__":
    main()
