"""From files to shards on shared storage: `paddlejob data`."""
