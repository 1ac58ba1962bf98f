demo: ## train a PyTorch model with reducers and with gloo, under two minutes; ARGS=--help lists options
	deploy/install-deps.sh build demo
	deploy/calm.sh compiling $(MAKE) $(par) all
	$(PYTHON) agent/examples/demo/demo.py --build $(B) $(ARGS)
demo-elastic: ## train while reducers start, drain and are killed, beside the same training without, and draw both, under a minute
	deploy/install-deps.sh build demo
	deploy/calm.sh compiling $(MAKE) $(par) all
	$(PYTHON) agent/examples/demo/elastic.py --build $(B) --plot $(BUILD)/demo-elastic.svg $(ARGS)
.PHONY: demo demo-elastic
