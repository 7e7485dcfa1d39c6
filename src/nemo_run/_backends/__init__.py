"""One folder for each place where jobs run. A backend imports no other backend."""
