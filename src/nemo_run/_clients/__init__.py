"""The calls we make to clusters, typed. A client knows neither executors nor torchx."""
