package main

import (
	"crypto/x509"
	"fmt"
	"io"
	"os"

	"federator.dev/federator/internal/config"
	"federator.dev/federator/pkg/notify"
)

// notifyReceivers returns the receivers of a configuration. Their keys are read for each
// event, so that a mounted Secret can be rotated without a restart.
func notifyReceivers(cfg *config.Notify) ([]notify.Receiver, error) {
	out := make([]notify.Receiver, 0, len(cfg.Receivers))
	for i, c := range cfg.Receivers {
		path := fmt.Sprintf("policies.notify.receivers[%d]", i)
		r := notify.Receiver{Name: c.Name, URL: c.URL, Keys: func() ([][]byte, error) {
			text, err := readSecrets(c.KeyFile)
			if err != nil {
				return nil, err
			}
			return notify.ParseKeys(text)
		}}
		if err := r.ValidateKeys(); err != nil {
			return nil, fmt.Errorf("%s.keyFile: %w", path, err)
		}
		if c.CAFile != "" {
			text, err := config.ReadFile(c.CAFile)
			if err != nil {
				return nil, fmt.Errorf("%s.caFile: %w", path, err)
			}
			if r.RootCAs = x509.NewCertPool(); !r.RootCAs.AppendCertsFromPEM(text) {
				return nil, fmt.Errorf("%s.caFile: %s has no certificate (PEM)", path, c.CAFile)
			}
		}
		out = append(out, r)
	}
	return out, nil
}

// maxSecrets bounds a file of secrets, in bytes.
const maxSecrets = 64 << 10

// readSecrets reads a file of secrets, one per line.
func readSecrets(file string) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxSecrets+1))
	if err != nil {
		return nil, err
	}
	if len(text) > maxSecrets {
		return nil, fmt.Errorf("%s has more than %d bytes", file, maxSecrets)
	}
	return text, nil
}
