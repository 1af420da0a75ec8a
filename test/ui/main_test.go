package ui

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"k8s.io/klog/v2"
)

func TestMain(m *testing.M) {
	klog.SetLogger(klog.Logger{}) // client-go's logs are not the test's
	goleak.VerifyTestMain(m)
}

// install says how to get what stories need.
const install = "apt-get install --no-install-recommends chromium fonts-dejavu-core npm"

// tools are the programs that stories need.
type tools struct{ chromium, npx string }

// require returns the programs, and installs what npm brings, or skips the test.
func require(t *testing.T) tools {
	t.Helper()
	if testing.Short() {
		t.Skip("stories in a browser need real control planes")
	}
	missing := func(format string, args ...any) {
		t.Helper()
		text := fmt.Sprintf(format, args...)
		if os.Getenv("CI") != "" {
			t.Fatal(text)
		}
		fmt.Fprintf(os.Stderr, "\n*** THE WEB UI IS NOT TESTED: %s. On Debian: %s\n\n", text, install)
		t.Skip(text)
	}
	var found tools
	var err error
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if found.chromium, err = exec.LookPath(name); err == nil {
			break
		}
	}
	if err != nil {
		missing("there is no Chromium")
	}
	if found.npx, err = exec.LookPath("npx"); err != nil {
		missing("there is no npx")
	}
	setUp := exec.CommandContext(t.Context(), "make", "-C", root(t), "ui-modules")
	if out, err := setUp.CombinedOutput(); err != nil {
		missing("installing modules with npm failed: %v\n%s", err, out)
	}
	return found
}

// root is the directory of the module.
func root(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// full reports whether all stories are played: in CI and with UI=full. Otherwise those that are marked
// @full are left out. Only with UI=full they are played on a large fleet.
func full() bool { return os.Getenv("CI") != "" || os.Getenv("UI") == "full" }

// play runs the stories of a project of ui/playwright.config.ts.
func play(t *testing.T, found tools, project string, of world) {
	t.Helper()
	description := filepath.Join(t.TempDir(), "world.json")
	text, err := json.Marshal(of)
	if err == nil {
		err = os.WriteFile(description, text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	results := os.Getenv("UI_RESULTS") // where traces and screenshots of failures go
	if results == "" {
		results = t.TempDir()
	}
	// Playwright ends a story that hangs. What hangs itself must not keep what it runs on.
	ctx := t.Context()
	if end, limited := t.Deadline(); limited {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, end.Add(-time.Minute))
		defer cancel()
	}
	args := []string{"playwright", "test", "--project=" + project}
	if !full() {
		args = append(args, "--grep-invert=@full")
	}
	cmd := exec.CommandContext(ctx, found.npx, append(args, strings.Fields(os.Getenv("STORIES"))...)...)
	cmd.Dir = filepath.Join(root(t), "ui")
	cmd.Env = append(os.Environ(), "UI_WORLD="+description, "UI_CHROMIUM="+found.chromium, "UI_RESULTS="+results, "FORCE_COLOR=0", "UI_FULL="+strconv.FormatBool(full()))
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.WaitDelay = 10 * time.Second
	err = cmd.Run()
	t.Logf("%s", &out)
	if err != nil {
		t.Errorf("stories of %s: %v", project, errors.Join(err, ctx.Err()))
	}
}

// world is what stories are told: where things are.
type world struct {
	URL    string `json:"url"`    // of federator
	Driver string `json:"driver"` // of what changes the fleet
	// Screenshots is a directory for the pictures of docs; "" for none.
	Screenshots string            `json:"screenshots"`
	Tokens      map[string]string `json:"tokens"` // by user
	// Members and Pods are how many there are in a simulated fleet, and PID federator's process.
	Members int `json:"members"`
	Pods    int `json:"pods"`
	PID     int `json:"pid"`
}

// wait lets a second pass, for somebody who looks at a fleet.
func wait(t *testing.T) {
	t.Helper()
	select {
	case <-time.After(time.Second):
	case <-t.Context().Done():
		t.Fatal(t.Context().Err())
	}
}
