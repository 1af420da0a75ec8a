package kube

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// Unaudited is a user whose writes are not recorded: those of a test that writes a lot.
const Unaudited = "unaudited"

// auditPolicy records writes with their requests and responses.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived, ResponseStarted]
rules:
- level: None
  users: [` + Unaudited + `]
- level: RequestResponse
  verbs: [create, update, patch, delete, deletecollection]
- level: None
`

// AuditEvent is a write as an API server has recorded it, of audit.k8s.io/v1.
type AuditEvent struct {
	AuditID    string `json:"auditID"`
	Verb       string `json:"verb"`
	RequestURI string `json:"requestURI"`
	UserAgent  string `json:"userAgent"`
	User       struct {
		Username string `json:"username"`
	} `json:"user"`
	ObjectRef struct {
		Resource    string `json:"resource"`
		Namespace   string `json:"namespace"`
		Name        string `json:"name"`
		Subresource string `json:"subresource"`
	} `json:"objectRef"`
	ResponseStatus struct {
		Code int `json:"code"`
	} `json:"responseStatus"`
	Received       time.Time       `json:"requestReceivedTimestamp"`
	Completed      time.Time       `json:"stageTimestamp"`
	RequestObject  json.RawMessage `json:"requestObject"`
	ResponseObject json.RawMessage `json:"responseObject"`
}

func (c *ControlPlane) auditFile() string { return filepath.Join(c.Dir, "audit.log") }

// auditArgs are the flags for Options.Audit.
func (c *ControlPlane) auditArgs() ([]string, error) {
	policy := filepath.Join(c.Dir, "audit-policy.yaml")
	if err := os.WriteFile(policy, []byte(auditPolicy), 0o600); err != nil {
		return nil, err
	}
	return []string{"--audit-policy-file=" + policy, "--audit-log-path=" + c.auditFile(), "--audit-log-mode=blocking-strict"}, nil
}

// Audit returns the writes that the API server has answered, in the order in which it
// has recorded them; Options.Audit has it do so. An answer may arrive before its
// event is recorded.
func (c *ControlPlane) Audit() ([]AuditEvent, error) {
	f, err := os.Open(c.auditFile())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil // nothing was written
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var events []AuditEvent
	for r := bufio.NewReader(f); ; {
		line, err := r.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return events, nil // a line that has no end is being written
		}
		if err != nil {
			return nil, err
		}
		var e AuditEvent
		if err := json.Unmarshal(line, &e); err != nil {
			return nil, fmt.Errorf("%s: audit log: %w", c.Name, err)
		}
		events = append(events, e)
	}
}
