demo: ## train a real PyTorch model through reducers and with gloo beside it, under two minutes
	deploy/install-deps.sh build demo
	$(MAKE) $(par) all
	$(PYTHON) agent/examples/demo/demo.py --build $(B)
.PHONY: demo
