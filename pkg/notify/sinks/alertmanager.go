package sinks

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	"federator.dev/federator/pkg/notify/internal/webhook"
)

// maxAlerts is how many alerts a request has.
const maxAlerts = 500

// AlertmanagerOptions configure an Alertmanager. URLs is required.
type AlertmanagerOptions struct {
	// URLs of all instances, to which /api/v2/alerts is added: those of a cluster want the alerts from
	// each client. http is for loopback, and for where there are no credentials.
	URLs       []string
	Token      string // of bearer; "": none
	Username   string // of basic authentication; "": none
	Password   string
	CA         []byte // PEM; nil: the system's roots
	ClientCert []byte // PEM, with ClientKey; nil: none
	ClientKey  []byte
	Dial       Dial          // nil: that of a net.Dialer
	Timeout    time.Duration // of each request; 0: 10 s
}

// Alert is one alert of Alertmanager's API v2. One of an equal set of labels replaces the former.
type Alert struct {
	Labels       map[string]string `json:"labels"`
	Annotations  map[string]string `json:"annotations,omitempty"`
	StartsAt     time.Time         `json:"startsAt,omitzero"`
	EndsAt       time.Time         `json:"endsAt,omitzero"` // zero: Alertmanager resolves it after its resolve_timeout
	GeneratorURL string            `json:"generatorURL,omitempty"`
}

// Alertmanager posts alerts. It is safe for concurrent use.
type Alertmanager struct {
	instances     []instance
	authorization string // header; "": none
	timeout       time.Duration
	client        *http.Client
}

type instance struct {
	name string // the URL without its query
	url  string // of the API
}

// NewAlertmanager returns an Alertmanager, or a FieldError.
func NewAlertmanager(opts AlertmanagerOptions) (*Alertmanager, error) {
	config, err := tlsConfig(opts.CA, opts.ClientCert, opts.ClientKey)
	if err != nil {
		return nil, err
	}
	a := &Alertmanager{client: httpClient(opts.Dial, config)}
	if a.timeout, err = timeoutOr(opts.Timeout); err != nil {
		return nil, err
	}
	if a.authorization, err = authorization(&opts); err != nil {
		return nil, err
	}
	if len(opts.URLs) == 0 {
		return nil, &FieldError{Field: "urls", Problem: "there is none"}
	}
	for i, text := range opts.URLs {
		in, problem := newInstance(text, a.authorization != "" || opts.ClientCert != nil)
		if problem != "" {
			return nil, &FieldError{Field: fmt.Sprintf("urls[%d]", i), Problem: problem}
		}
		a.instances = append(a.instances, in)
	}
	return a, nil
}

func newInstance(text string, credentials bool) (in instance, problem string) {
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return in, "it is not a URL"
	case u.Host == "" || u.Scheme != "https" && u.Scheme != "http":
		return in, "it is not an http or https URL"
	case u.User != nil:
		return in, "it has a user: credentials have fields of their own"
	case u.Scheme == "http" && credentials && !webhook.IsLoopback(u.Hostname()):
		return in, "credentials are not sent over http"
	}
	in.url = u.JoinPath("api/v2/alerts").String()
	u.RawQuery, u.Fragment = "", ""
	in.name = u.String()
	return in, ""
}

func authorization(opts *AlertmanagerOptions) (string, error) {
	switch basic := opts.Username != "" || opts.Password != ""; {
	case basic && opts.Token != "":
		return "", &FieldError{Field: "token", Problem: "there are a username or password, too"}
	case opts.Token != "" && !isVisible(opts.Token):
		return "", &FieldError{Field: "token", Problem: "it is not visible ASCII"}
	case opts.Token != "":
		return "Bearer " + opts.Token, nil
	case basic:
		return "Basic " + base64.StdEncoding.EncodeToString([]byte(opts.Username+":"+opts.Password)), nil
	}
	return "", nil
}

// Post posts alerts to all instances at once. An error joins those of the instances that have not taken all of
// them, each with the instance's URL; a RefusedError where one has answered. Alerts that cannot be posted, a
// FieldError, are posted to none.
func (a *Alertmanager) Post(ctx context.Context, alerts []Alert) error {
	chunks, err := encodeAlerts(alerts)
	if err != nil {
		return err
	}
	errs := make([]error, len(a.instances))
	var wg sync.WaitGroup
	for i := range a.instances {
		wg.Go(func() { errs[i] = a.postTo(ctx, &a.instances[i], chunks) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// encodeAlerts returns the bodies of requests, or a FieldError.
func encodeAlerts(alerts []Alert) (chunks [][]byte, err error) {
	for chunk := range slices.Chunk(alerts, maxAlerts) {
		body := []byte("[")
		for i := range chunk {
			text, err := json.Marshal(&chunk[i])
			if err != nil { // a year of more than four digits
				return nil, &FieldError{Field: fmt.Sprintf("alerts[%d]", len(chunks)*maxAlerts+i), Problem: err.Error()}
			}
			if i > 0 {
				body = append(body, ',')
			}
			body = append(body, text...)
		}
		chunks = append(chunks, append(body, ']'))
	}
	return chunks, nil
}

// postTo posts the chunks to one instance. After one that was refused for what is in it the others are posted.
func (a *Alertmanager) postTo(ctx context.Context, in *instance, chunks [][]byte) error {
	var errs []error
	for _, body := range chunks {
		err := a.post(ctx, in, body)
		if err == nil {
			continue
		}
		errs = append(errs, fmt.Errorf("alertmanager %s: %w", in.name, err))
		var refused *RefusedError
		if !errors.As(err, &refused) || refused.Status != http.StatusBadRequest {
			break
		}
	}
	return errors.Join(errs...)
}

func (a *Alertmanager) post(ctx context.Context, in *instance, body []byte) error {
	ctx, cancel := context.WithTimeout(ctx, a.timeout)
	defer cancel()
	header := http.Header{"Content-Type": {"application/json"}}
	if a.authorization != "" {
		header.Set("Authorization", a.authorization)
	}
	return webhook.Post(ctx, a.client, in.url, body, header)
}

// Close closes the connections that are kept open.
func (a *Alertmanager) Close() error {
	a.client.CloseIdleConnections()
	return nil
}
