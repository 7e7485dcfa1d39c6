"""A package of the user's. This copy is installed in images; another travels with the job."""
