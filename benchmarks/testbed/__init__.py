"""Hosts on one machine: network namespaces with shaped links, and what is measured between them."""
