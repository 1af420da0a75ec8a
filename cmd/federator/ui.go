package main

import (
	"crypto/x509"
	"fmt"
	"log/slog"
	"strings"

	"k8s.io/client-go/rest"

	"federator.dev/federator/internal/config"
	"federator.dev/federator/internal/fleet"
	"federator.dev/federator/pkg/queryapi"
	"federator.dev/federator/pkg/webui"
)

// addUI adds the web UI to the options of the query API, unless it is disabled.
func addUI(opts *queryapi.Options, cfg *config.Config, hubREST *rest.Config, log *slog.Logger) error {
	if !cfg.UI.Enabled {
		return nil
	}
	key, err := fleet.ReadKey(cfg.UI.SessionKeyFile)
	if err != nil {
		return fmt.Errorf("ui.sessionKeyFile: %w", err)
	}
	oidc, err := oidcOptions(cfg.UI.OIDC)
	if err != nil {
		return err
	}
	for _, t := range cfg.UI.HubTokens {
		opts.Authentication.HubTokens = append(opts.Authentication.HubTokens, queryapi.HubTokens(t))
	}
	if oidc != nil {
		opts.Authentication.HubTokens = append(opts.Authentication.HubTokens, queryapi.HubTokens{Issuer: oidc.Issuer, Audience: oidc.ClientID})
	}
	ui, err := webui.New(webui.Options{
		Logger: log, Version: version(), Key: key, OIDC: oidc, Hub: hubREST, Namespace: cfg.Policies.Namespace,
	})
	if err != nil {
		return err
	}
	opts.UI = ui
	return nil
}

// oidcOptions returns where users log in, nil where they paste tokens. The client's secret is read for each log-in,
// so that a mounted Secret can be rotated without a restart.
func oidcOptions(c *config.OIDC) (*webui.OIDC, error) {
	if c == nil {
		return nil, nil
	}
	o := &webui.OIDC{Issuer: c.Issuer, ClientID: c.ClientID, Scopes: c.Scopes, RedirectURL: c.RedirectURL}
	if c.ClientSecretFile != "" {
		o.ClientSecret = func() (string, error) {
			text, err := readSecrets(c.ClientSecretFile)
			return strings.TrimSpace(string(text)), err
		}
		if _, err := o.ClientSecret(); err != nil {
			return nil, fmt.Errorf("ui.oidc.clientSecretFile: %w", err)
		}
	}
	if c.CAFile != "" {
		text, err := config.ReadFile(c.CAFile)
		if err != nil {
			return nil, fmt.Errorf("ui.oidc.caFile: %w", err)
		}
		if o.RootCAs = x509.NewCertPool(); !o.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("ui.oidc.caFile: %s has no certificate (PEM)", c.CAFile)
		}
	}
	return o, nil
}
