package main

import (
	"crypto/sha256"
	"encoding/hex"
	"net/url"
	"path/filepath"
	"strings"
)

// SARIF 2.1.0, as far as it is used here:
// https://docs.oasis-open.org/sarif/sarif/v2.1.0/sarif-v2.1.0.html
type (
	sarifLog struct {
		Schema  string     `json:"$schema"`
		Version string     `json:"version"`
		Runs    []sarifRun `json:"runs"`
	}
	sarifRun struct {
		Tool struct {
			Driver sarifDriver `json:"driver"`
		} `json:"tool"`
		Invocations []sarifInvocation `json:"invocations,omitempty"`
		Results     []sarifResult     `json:"results"`
		Properties  map[string]any    `json:"properties,omitempty"`
	}
	sarifDriver struct {
		Name    string      `json:"name"`
		Version string      `json:"version,omitempty"`
		Rules   []sarifRule `json:"rules"`
	}
	sarifRule struct {
		ID                   string         `json:"id"`
		ShortDescription     *sarifText     `json:"shortDescription,omitempty"`
		FullDescription      *sarifText     `json:"fullDescription,omitempty"`
		DefaultConfiguration sarifConfig    `json:"defaultConfiguration"`
		Properties           map[string]any `json:"properties,omitempty"`
	}
	sarifConfig struct {
		Level string `json:"level"`
	}
	sarifText struct {
		Text string `json:"text"`
	}
	sarifInvocation struct {
		ExecutionSuccessful bool          `json:"executionSuccessful"`
		Notifications       []sarifNotice `json:"toolExecutionNotifications,omitempty"`
	}
	sarifNotice struct {
		Level   string    `json:"level"`
		Message sarifText `json:"message"`
	}
	sarifResult struct {
		RuleID       string             `json:"ruleId"`
		RuleIndex    *int               `json:"ruleIndex,omitempty"`
		Kind         string             `json:"kind"`
		Level        string             `json:"level"`
		Message      sarifText          `json:"message"`
		Locations    []sarifLocation    `json:"locations"`
		Fingerprints map[string]string  `json:"partialFingerprints,omitempty"`
		Suppressions []sarifSuppression `json:"suppressions,omitempty"`
		Properties   map[string]any     `json:"properties,omitempty"`
	}
	sarifSuppression struct {
		Kind          string `json:"kind"`
		Justification string `json:"justification,omitempty"`
	}
	sarifLocation struct {
		Physical *sarifPhysical `json:"physicalLocation,omitempty"`
		Logical  []sarifLogical `json:"logicalLocations,omitempty"`
	}
	sarifPhysical struct {
		Artifact struct {
			URI string `json:"uri"`
		} `json:"artifactLocation"`
		Region *sarifRegion `json:"region,omitempty"`
	}
	sarifRegion struct {
		StartLine   int `json:"startLine"`
		StartColumn int `json:"startColumn,omitempty"`
	}
	sarifLogical struct {
		FullyQualifiedName string `json:"fullyQualifiedName"`
		Kind               string `json:"kind"`
	}
)

const sarifSchema = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"

func newSarif() (*sarifLog, *sarifRun) {
	log := &sarifLog{Schema: sarifSchema, Version: "2.1.0", Runs: make([]sarifRun, 1)}
	run := &log.Runs[0]
	run.Tool.Driver = sarifDriver{Name: "federator", Version: version(), Rules: []sarifRule{}}
	run.Results = []sarifResult{}
	return log, run
}

// sarifLevel is a severity in SARIF's words.
func sarifLevel(severity string) string {
	switch severity {
	case "critical", "high":
		return "error"
	case "medium":
		return "warning"
	}
	return "note"
}

// sarif gives violations as results of kind fail, exempt ones suppressed, unknown
// verdicts as results of kind open, and errors as notifications of the run.
func (r *report) sarif() *sarifLog {
	log, run := newSarif()
	run.Properties = map[string]any{"revision": r.Revision, "asOf": r.AsOf.UTC()}
	index := map[string]int{}
	files := map[string]string{}
	for i, p := range r.Policies {
		rule := sarifRule{
			ID: p.Name, DefaultConfiguration: sarifConfig{Level: sarifLevel(p.Severity)},
			Properties: map[string]any{"severity": p.Severity},
		}
		if p.Title != "" {
			rule.ShortDescription = &sarifText{p.Title}
		}
		if p.Description != "" {
			rule.FullDescription = &sarifText{p.Description}
		}
		index[p.Name], files[p.Name] = i, p.File
		run.Tool.Driver.Rules = append(run.Tool.Driver.Rules, rule)
	}
	invocation := sarifInvocation{ExecutionSuccessful: true}
	for _, x := range r.Results {
		if x.State == failed {
			invocation.Notifications = append(invocation.Notifications, sarifNotice{
				Level: "error", Message: sarifText{x.Policy + ": " + x.Subject.path() + ": " + x.Message},
			})
			continue
		}
		out := sarifResult{
			RuleID: x.Policy, Kind: "fail", Level: sarifLevel(x.Severity), Message: sarifText{x.Message},
			Locations:    []sarifLocation{locate(x.Subject, files[x.Policy])},
			Fingerprints: map[string]string{"subject/v1": fingerprint(x)},
			Properties:   map[string]any{"binding": x.Binding, "severity": x.Severity, "subject": x.Subject},
		}
		if i, ok := index[x.Policy]; ok {
			out.RuleIndex = &i
		}
		switch x.State {
		case unknown:
			out.Kind, out.Level = "open", "none"
		case exempt:
			out.Suppressions = []sarifSuppression{{Kind: "external", Justification: x.Reason}}
		}
		run.Results = append(run.Results, out)
	}
	run.Invocations = []sarifInvocation{invocation}
	return log
}

// locate gives the subject, and the policy's file, which is the only one there is.
func locate(s subject, file string) sarifLocation {
	kind := "object"
	if s.Kind == "" {
		kind = "resource"
	}
	out := sarifLocation{Logical: []sarifLogical{{FullyQualifiedName: s.path(), Kind: kind}}}
	if file != "" {
		out.Physical = physical(file, 1, 0)
	}
	return out
}

func physical(file string, line, column int) *sarifPhysical {
	p := &sarifPhysical{Region: &sarifRegion{StartLine: max(line, 1), StartColumn: column}}
	p.Artifact.URI = (&url.URL{Path: strings.TrimPrefix(filepath.ToSlash(file), "./")}).String()
	return p
}

// fingerprint is the same for the same finding in another run.
func fingerprint(x result) string {
	h := sha256.New()
	for _, part := range []string{x.Policy, x.Binding, x.Subject.path(), x.Message} {
		h.Write([]byte(part))
		h.Write([]byte{0})
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}
