"""What is run beside the package: setting up engines, making the documentation's site."""
