demo: ## train a PyTorch model with reducers and with gloo, under two minutes; ARGS=--help lists options
	deploy/install-deps.sh build demo
	deploy/calm.sh compiling $(MAKE) $(par) all
	$(PYTHON) agent/examples/demo/demo.py --build $(B) $(ARGS)
.PHONY: demo
