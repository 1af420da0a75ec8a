package sarif

import (
	"net/url"
	"path/filepath"
	"strings"
)

// SARIF 2.1.0, as far as it is used here:
// https://docs.oasis-open.org/sarif/sarif/v2.1.0/sarif-v2.1.0.html
type (
	Log struct {
		Schema  string `json:"$schema"`
		Version string `json:"version"`
		Runs    []Run  `json:"runs"`
	}
	Run struct {
		Tool struct {
			Driver Driver `json:"driver"`
		} `json:"tool"`
		Invocations []Invocation   `json:"invocations,omitempty"`
		Results     []Result       `json:"results"`
		Properties  map[string]any `json:"properties,omitempty"`
	}
	Driver struct {
		Name    string `json:"name"`
		Version string `json:"version,omitempty"`
		Rules   []Rule `json:"rules"`
	}
	Rule struct {
		ID                   string         `json:"id"`
		ShortDescription     *Text          `json:"shortDescription,omitempty"`
		FullDescription      *Text          `json:"fullDescription,omitempty"`
		DefaultConfiguration Configuration  `json:"defaultConfiguration"`
		Properties           map[string]any `json:"properties,omitempty"`
	}
	Configuration struct {
		Level string `json:"level"`
	}
	Text struct {
		Text string `json:"text"`
	}
	Invocation struct {
		ExecutionSuccessful bool           `json:"executionSuccessful"`
		Notifications       []Notification `json:"toolExecutionNotifications,omitempty"`
	}
	Notification struct {
		Level   string `json:"level"`
		Message Text   `json:"message"`
	}
	Result struct {
		RuleID       string            `json:"ruleId"`
		RuleIndex    *int              `json:"ruleIndex,omitempty"`
		Kind         string            `json:"kind"`
		Level        string            `json:"level"`
		Message      Text              `json:"message"`
		Locations    []Location        `json:"locations"`
		Fingerprints map[string]string `json:"partialFingerprints,omitempty"`
		Suppressions []Suppression     `json:"suppressions,omitempty"`
		Properties   map[string]any    `json:"properties,omitempty"`
	}
	Suppression struct {
		Kind          string `json:"kind"`
		Justification string `json:"justification,omitempty"`
	}
	Location struct {
		Physical *PhysicalLocation `json:"physicalLocation,omitempty"`
		Logical  []LogicalLocation `json:"logicalLocations,omitempty"`
	}
	PhysicalLocation struct {
		Artifact struct {
			URI string `json:"uri"`
		} `json:"artifactLocation"`
		Region *Region `json:"region,omitempty"`
	}
	Region struct {
		StartLine   int `json:"startLine"`
		StartColumn int `json:"startColumn,omitempty"`
	}
	LogicalLocation struct {
		FullyQualifiedName string `json:"fullyQualifiedName"`
		Kind               string `json:"kind"`
	}
)

const schema = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"

func New(version string) (*Log, *Run) {
	log := &Log{Schema: schema, Version: "2.1.0", Runs: make([]Run, 1)}
	run := &log.Runs[0]
	run.Tool.Driver = Driver{Name: "federator", Version: version, Rules: []Rule{}}
	run.Results = []Result{}
	return log, run
}

func File(file string, line, column int) *PhysicalLocation {
	p := &PhysicalLocation{Region: &Region{StartLine: max(line, 1), StartColumn: column}}
	p.Artifact.URI = (&url.URL{Path: strings.TrimPrefix(filepath.ToSlash(file), "./")}).String()
	return p
}
