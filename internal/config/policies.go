package config

import (
	"slices"
	"time"
)

// Policies says which policies judge the fleet.
type Policies struct {
	Dirs     []string `yaml:"dirs" doc:"Directories of policies. They are read once, at the start. Empty: none. To FleetPolicies they are the sources dir-1, dir-2 and so on."`
	Library  bool     `yaml:"library" doc:"The policies that come with federator, too."`
	Bindings string   `yaml:"bindings" doc:"File of bindings. A policy without one is evaluated everywhere."`

	Hub              bool     `yaml:"hub" doc:"FleetPolicies of the hub bind policies and say what may come of violations; PolicySources bring more policies from git."`
	Namespace        string   `yaml:"namespace" doc:"Namespace of the hub with the Leases of the process that acts (federator) and of revisions (federator-revisions), and the ConfigMap that stops all actions."`
	SecretNamespaces []string `yaml:"secretNamespaces" doc:"Namespaces of the hub with the Secrets that PolicySources may name."`
	AllowFile        bool     `yaml:"allowFile" doc:"PolicySources may name repositories of this machine, as file:// URLs."`

	Webhook Webhook `yaml:"webhook" doc:"What git hosts tell of a push, so that it is seen at once."`

	Reports        bool          `yaml:"reports" doc:"Write what policies find as OpenReports on the hub, by member. Whoever may read Reports there reads it, whatever he may read of members. The hub must have the CRDs of openreports.io."`
	ReportInterval time.Duration `yaml:"reportInterval" doc:"How often Reports are written at most."`

	ActionRetention time.Duration `yaml:"actionRetention" doc:"How long Actions are kept that have ended. What was written counts in limits for so long, too."`
	ActionsKept     int           `yaml:"actionsKept" doc:"How many of the newest are kept anyhow."`
}

// Webhook is where git hosts tell of pushes.
type Webhook struct {
	Listen     string `yaml:"listen" doc:"Address of POST /hooks/git, in plain HTTP: let a proxy before it have the certificate. Empty: none."`
	SecretFile string `yaml:"secretFile" doc:"File with the secret that requests prove to know (GitHub, Gitea, Forgejo, GitLab), of 16 bytes or more. Several, a line each, so that they can be rotated."`
}

func (c *Config) validatePolicies(p *problems) {
	switch hook := c.Policies.Webhook; {
	case hook.Listen == "" && hook.SecretFile != "":
		p.add("policies.webhook.secretFile", "is given, but no policies.webhook.listen")
	case hook.Listen != "" && hook.SecretFile == "":
		p.add("policies.webhook.secretFile", "is required with policies.webhook.listen")
	case hook.Listen != "" && !c.Policies.Hub:
		p.add("policies.webhook.listen", "is given, but policies.hub is false: there are no PolicySources")
	}
	switch {
	case c.Policies.Hub && c.Policies.Bindings != "":
		p.add("policies.bindings", "is given, but FleetPolicies bind: policies.hub is true")
	case len(c.Policies.Dirs) == 0 && !c.Policies.Library && c.Policies.Bindings != "":
		p.add("policies.bindings", "is given, but no policies.dirs")
	}
	if c.Policies.Hub && !c.HasHub() {
		p.add("policies.hub", "is true, but there is no hub: see sources")
	}
	if c.Policies.Reports && !c.Policies.Hub {
		p.add("policies.reports", "is true, but policies.hub is false: there is no hub to write to")
	}
	if c.Policies.ReportInterval < time.Second {
		p.add("policies.reportInterval", "is %s, must be at least 1s", c.Policies.ReportInterval)
	}
	if c.Policies.Hub && c.Policies.Namespace == "" {
		p.add("policies.namespace", "must not be empty")
	}
	if c.Policies.ActionRetention < time.Hour {
		p.add("policies.actionRetention", "is %s, must be at least 1h", c.Policies.ActionRetention)
	}
	if c.Policies.ActionsKept < 0 {
		p.add("policies.actionsKept", "is %d, must not be negative", c.Policies.ActionsKept)
	}
	if slices.Contains(c.Policies.Dirs, "") {
		p.add("policies.dirs", "a directory must not be empty")
	}
}
