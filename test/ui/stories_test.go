package ui

import (
	"os"
	"testing"
)

// TestStories plays the stories on real control planes.
func TestStories(t *testing.T) {
	found := require(t)
	f := startFleet(t)
	play(t, found, "fleet", world{URL: f.url, Driver: f.drive(), Screenshots: os.Getenv("UI_SCREENSHOTS")})
}
