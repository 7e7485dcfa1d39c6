"""How bytes and questions travel: ssh, HTTP, websockets, and questions asked together."""
