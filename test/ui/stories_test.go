package ui

import (
	"encoding/json"
	"os"
	"testing"
)

// TestStories plays the stories on real control planes. With HOLD=FILE in the environment it plays
// nothing: it writes where things are to the file, for stories that are being written, and waits
// until the file is gone.
func TestStories(t *testing.T) {
	found := require(t)
	f := startFleet(t)
	of := world{URL: f.url(), Driver: f.drive(), Screenshots: os.Getenv("UI_SCREENSHOTS")}
	if file := os.Getenv("HOLD"); file != "" {
		hold(t, file, of)
		return
	}
	play(t, found, "fleet", of)
}

// TestLatency measures how long it takes from a write on a member to the pixel, where FIGURES is set.
func TestLatency(t *testing.T) {
	if os.Getenv("FIGURES") == "" {
		t.Skip("make ui-figures measures")
	}
	found := require(t)
	f := startFleet(t)
	play(t, found, "latency", world{URL: f.url(), Driver: f.drive()})
}

func hold(t *testing.T, file string, of world) {
	t.Helper()
	text, err := json.Marshal(of)
	if err == nil {
		err = os.WriteFile(file, text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("the fleet is up: cd ui && UI_WORLD=%s npx playwright test --project fleet", file)
	for gone := false; !gone; {
		wait(t)
		_, err := os.Stat(file)
		gone = os.IsNotExist(err)
	}
}
