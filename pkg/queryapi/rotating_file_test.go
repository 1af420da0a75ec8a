package queryapi_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"federator.dev/federator/pkg/queryapi"
)

// TestRotatingFile_RotatesAuditLogs: the file and those set aside are bounded in size, number and
// age; each has whole lines, and no other file is touched.
func TestRotatingFile_RotatesAuditLogs(t *testing.T) {
	dir := t.TempDir()
	policy, log := filepath.Join(dir, "policy.yaml"), filepath.Join(dir, "audit.log")
	const (
		most     = 4 << 10
		backups  = 3
		requests = 60
		fresh    = "audit-2999-01-01T00-00-00.000000000.log"
	)
	for name, text := range map[string]string{
		"policy.yaml": "apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\nrules:\n- level: Metadata\n",
		"audit-2000-01-01T00-00-00.000000000.log": "{}\n", fresh: "{}\n", "audit-notes.log": "mine",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s := start(t, func(o *queryapi.Options) {
		o.Hub, o.Local = nil, true
		o.Audit = queryapi.Audit{PolicyFile: policy, LogFile: log, MaxBytes: most, MaxBackups: backups, MaxAge: time.Hour}
	})
	for i := range requests {
		s.get(t, fmt.Sprint("/query/v1/whoami?n=", i), s.Token())
	}
	if err := s.End(); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	all := ""
	for _, e := range entries {
		names = append(names, e.Name())
		if e.Name() == "policy.yaml" || e.Name() == "audit-notes.log" || e.Name() == fresh {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		if info, err := e.Info(); err != nil || info.Size() > most || info.Size() == 0 || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %d bytes, mode %v, %v", e.Name(), info.Size(), info.Mode(), err)
		}
		for line := range strings.Lines(string(text)) {
			var event auditv1.Event
			if err := json.Unmarshal([]byte(line), &event); err != nil || event.RequestURI == "" {
				t.Errorf("%s: %q: %v", e.Name(), line, err)
			}
		}
		all += string(text)
	}
	if len(names) != 2+1+backups || !slices.Contains(names, "audit-notes.log") || !slices.Contains(names, fresh) || !slices.Contains(names, "audit.log") {
		t.Errorf("files: %q", names)
	}
	if !strings.Contains(all, fmt.Sprintf("whoami?n=%d\"", requests-1)) || strings.Contains(all, "whoami?n=0\"") {
		t.Errorf("not the newest events:\n%s", all)
	}
}

// TestRotatingFile_KeepsWritingIfRotationFails, such as for a file that is not regular.
func TestRotatingFile_KeepsWritingIfRotationFails(t *testing.T) {
	dir := t.TempDir()
	policy := filepath.Join(dir, "policy.yaml")
	if err := os.WriteFile(policy, []byte("apiVersion: audit.k8s.io/v1\nkind: Policy\nrules:\n- level: Metadata\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := start(t, func(o *queryapi.Options) {
		o.Hub, o.Local = nil, true
		o.Audit = queryapi.Audit{PolicyFile: policy, LogFile: os.DevNull, MaxBytes: 1}
	})
	for range 3 {
		s.get(t, "/query/v1/whoami", s.Token())
	}
	if err := s.End(); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(os.DevNull); err != nil || info.Mode().IsRegular() {
		t.Errorf("%s is %v, %v", os.DevNull, info.Mode(), err)
	}
}

// audited is a server that writes an audit log of its own.
func audited(t *testing.T, log string, most int64) *server {
	t.Helper()
	policy := filepath.Join(t.TempDir(), "policy.yaml")
	if err := os.WriteFile(policy, []byte("apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\nrules:\n- level: Metadata\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return start(t, func(o *queryapi.Options) {
		o.Hub, o.Local = nil, true
		o.Audit = queryapi.Audit{PolicyFile: policy, LogFile: log, MaxBytes: most, MaxBackups: 100}
	})
}

// logged waits until the last line of a log is of a request: it is written once that has
// been answered.
func logged(t *testing.T, path string, n int) {
	t.Helper()
	until(t, fmt.Sprint("request ", n, " is logged"), func() bool {
		text, err := os.ReadFile(path)
		return err == nil && strings.HasSuffix(string(text), "\n") && strings.Contains(string(text), fmt.Sprintf("whoami?n=%d\"", n))
	})
}

// events returns the URIs of a log's events, and "?" for each line that is none.
func events(t *testing.T, path string) (uris []string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Error(err)
	}
	for line := range strings.Lines(string(text)) {
		var event auditv1.Event
		if err := json.Unmarshal([]byte(line), &event); err != nil {
			event.RequestURI = "?"
		}
		uris = append(uris, strings.TrimPrefix(event.RequestURI, "/query/v1/whoami?n="))
	}
	return uris
}

// TestRotatingFile_RecreatesARemovedFile, and appends to a file that replaced it.
func TestRotatingFile_RecreatesARemovedFile(t *testing.T) {
	dir := t.TempDir()
	log, moved := filepath.Join(dir, "audit.log"), filepath.Join(dir, "audit.log.1")
	s := audited(t, log, 1)
	ask := func(n int) {
		s.get(t, fmt.Sprint("/query/v1/whoami?n=", n), s.Token())
		logged(t, log, n)
	}
	ask(1)
	if err := os.Remove(log); err != nil {
		t.Fatal(err)
	}
	ask(2)
	if err := os.Rename(log, moved); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(log, []byte("theirs\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	ask(3)
	if err := s.End(); err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(events(t, moved), events(t, log)); got != "[2] [? 3]" {
		t.Errorf("what is logged: %s", got)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 2 {
		t.Errorf("files: %v, %v", entries, err)
	}
}

// TestRotatingFile_RotatesTheTargetOfALink: the target is renamed, not the link, and the new
// file has the same mode.
func TestRotatingFile_RotatesTheTargetOfALink(t *testing.T) {
	dir, far := t.TempDir(), t.TempDir()
	log := filepath.Join(far, "real.log")
	if err := os.WriteFile(log, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(log, 0o664); err != nil { // whatever the umask is
		t.Fatal(err)
	}
	link := filepath.Join(dir, "audit.log")
	if err := os.Symlink(log, link); err != nil {
		t.Fatal(err)
	}
	s := audited(t, link, 1)
	for n := range 3 {
		s.get(t, fmt.Sprint("/query/v1/whoami?n=", n), s.Token())
	}
	if err := s.End(); err != nil {
		t.Fatal(err)
	}
	if here, err := os.ReadDir(dir); err != nil || len(here) != 1 || here[0].Type() != os.ModeSymlink {
		t.Errorf("beside the link: %v, %v", here, err)
	}
	there, err := os.ReadDir(far)
	if err != nil || len(there) != 3 {
		t.Errorf("beside the file: %v, %v", there, err)
	}
	for _, e := range there {
		if info, err := e.Info(); err != nil || info.Mode() != 0o664 {
			t.Errorf("%s: %v, %v", e.Name(), info.Mode(), err)
		}
	}
}

// TestRotatingFile_LineThatWasCutOffHarmsNoOther: where a disk was full, or a machine went down.
func TestRotatingFile_LineThatWasCutOffHarmsNoOther(t *testing.T) {
	log := filepath.Join(t.TempDir(), "audit.log")
	if err := os.WriteFile(log, []byte(`{"kind":"Ev`), 0o600); err != nil {
		t.Fatal(err)
	}
	s := audited(t, log, 1<<20)
	ask := func(n int) {
		s.get(t, fmt.Sprint("/query/v1/whoami?n=", n), s.Token())
		logged(t, log, n)
	}
	ask(1)
	info, err := os.Stat(log)
	if err != nil {
		t.Fatal(err)
	}
	full(t, info.Size()+20, func() {
		s.get(t, "/query/v1/whoami?n=2", s.Token())
		until(t, "the disk is full", func() bool {
			now, err := os.Stat(log)
			return err == nil && now.Size() == info.Size()+20
		})
	})
	ask(3)
	if err := s.End(); err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(events(t, log)); got != "[? 1 ? 3]" {
		t.Errorf("what is logged: %s", got)
	}
}
