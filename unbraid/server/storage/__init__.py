"""What is kept between requests: by the server in a database (`store`), and by clients under seal (`seal`)."""
