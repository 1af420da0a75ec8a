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

// TestTheAuditLogIsRotated: the file and those set aside are bounded in size, number and
// age; each has whole lines, and no other file is touched.
func TestTheAuditLogIsRotated(t *testing.T) {
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
	if err := s.end(); err != nil {
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

// TestAnAuditLogThatCannotBeSetAsideGoesOn writes to what is no regular file.
func TestAnAuditLogThatCannotBeSetAsideGoesOn(t *testing.T) {
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
	if err := s.end(); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(os.DevNull); err != nil || info.Mode().IsRegular() {
		t.Errorf("%s is %v, %v", os.DevNull, info.Mode(), err)
	}
}
