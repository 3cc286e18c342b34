"""The OpenAI-compatible server.

    from unbraid.server.app import create_app
    from unbraid.server.service import Service

    app = create_app(Service(engine=engine, format=find("qwen3"), builder=builder, encoder=builder.encoder))

`unbraid serve` makes the service out of its flags, and runs the application.
"""
