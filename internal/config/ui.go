package config

import (
	"net/url"
	"slices"
	"strings"
)

// UI configures the web UI.
type UI struct {
	Enabled        bool       `yaml:"enabled" doc:"Serve the web UI at /ui of query.listen."`
	SessionKeyFile string     `yaml:"sessionKeyFile" doc:"File with a key of 32 bytes, in base64, by which the cookies of sessions are encrypted. Replicas need the same.\nEmpty: each process makes its own, and sessions end with it."`
	HubTokens      []HubToken `yaml:"hubTokens" doc:"Tokens for the hub's own API, by their issuer and audience, that the query API accepts besides those for query.audiences;\nthose of ui.oidc are, too. The web UI sends them on to the hub to write there; tokens for query.audiences may read only."`
	OIDC           *OIDC      `yaml:"oidc,omitempty" doc:"Log-in to the web UI by OpenID Connect. The hub's API server must trust the same issuer and client ID. Without it, users paste a token."`
}

// HubToken is what tells tokens for the hub's own API from others.
type HubToken struct {
	Issuer   string `yaml:"issuer"`
	Audience string `yaml:"audience"`
}

// OIDC is where users of the web UI log in.
type OIDC struct {
	Issuer           string   `yaml:"issuer" doc:"URL of the issuer, as its tokens have it."`
	ClientID         string   `yaml:"clientID" doc:"Client ID, which is the audience of ID tokens."`
	ClientSecretFile string   `yaml:"clientSecretFile" doc:"File with the client's secret, read for each log-in. Empty: a public client."`
	CAFile           string   `yaml:"caFile" doc:"Certificates (PEM) that the issuer is verified with, read at startup. Empty: the system's."`
	Scopes           []string `yaml:"scopes" doc:"Scopes that are asked for besides openid. With offline_access many issuers send a refresh token, which prolongs sessions."`
	RedirectURL      string   `yaml:"redirectURL" doc:"Address of /ui/oidc/callback as browsers reach it. Empty: at the host that the browser asked."`
}

// uiCallback is the path that issuers send browsers to.
const uiCallback = "/ui/oidc/callback"

func (c *Config) validateUI(p *problems) {
	u := &c.UI
	for i, t := range u.HubTokens {
		if t.Issuer == "" || t.Audience == "" {
			p.add("ui.hubTokens", "number %d needs an issuer and an audience", i)
		}
	}
	if !c.HasHub() && (len(u.HubTokens) > 0 || u.OIDC != nil) {
		p.add("ui", "hubTokens and oidc need a hub: see sources")
	}
	if u.OIDC != nil {
		u.OIDC.validate(p)
	}
}

func (o *OIDC) validate(p *problems) {
	if o.Scopes == nil {
		o.Scopes = []string{"email", "profile"}
	}
	if at, err := url.Parse(o.Issuer); err != nil || at.Scheme != "https" || at.Host == "" || at.RawQuery != "" || at.Fragment != "" {
		p.add("ui.oidc.issuer", "%q is not an https URL without a query", o.Issuer)
	}
	if o.ClientID == "" {
		p.add("ui.oidc.clientID", "is required")
	}
	if slices.ContainsFunc(o.Scopes, func(s string) bool { return s == "" || strings.ContainsAny(s, " \t\n") }) {
		p.add("ui.oidc.scopes", "a scope must not be empty or have blanks")
	}
	if at, err := url.Parse(o.RedirectURL); o.RedirectURL != "" && (err != nil || at.Scheme != "https" || at.Host == "" || at.Path != uiCallback || at.RawQuery != "" || at.Fragment != "") {
		p.add("ui.oidc.redirectURL", "%q is not an https URL with the path %s", o.RedirectURL, uiCallback)
	}
}
