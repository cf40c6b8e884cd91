// Command predict is the part of `make bench SUITES=planner` that is not measured. It reads {"cells": [{"machine":
// ..., "pipeline": ...}]} from stdin. For each cell it writes the prediction of package plan and the result of
// DS-Analyzer's formula.
package main

import (
	"encoding/json"
	"fmt"
	"os"

	"github.com/stokerdata/stoker/plan"
)

type input struct {
	Cells []struct {
		Machine  plan.Machine  `json:"machine"`
		Pipeline plan.Pipeline `json:"pipeline"`
	} `json:"cells"`
}

type output struct {
	Prediction plan.Prediction `json:"prediction"`
	// Published and Corrected are DS-Analyzer's, in examples per second.
	Published float64 `json:"published"`
	Corrected float64 `json:"corrected"`
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "predict:", err)
		os.Exit(1)
	}
}

func run() error {
	var in input
	if err := json.NewDecoder(os.Stdin).Decode(&in); err != nil {
		return err
	}
	out := make([]output, len(in.Cells))
	for i, c := range in.Cells {
		out[i].Prediction = plan.Predict(c.Pipeline, c.Machine)
		out[i].Published, out[i].Corrected = plan.DSAnalyzer(c.Pipeline, c.Machine)
	}
	return json.NewEncoder(os.Stdout).Encode(out)
}
