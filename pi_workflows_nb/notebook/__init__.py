"""What a person sees in a notebook: the server and run objects, frames, views, magics."""
