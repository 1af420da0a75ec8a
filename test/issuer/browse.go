package issuer

import (
	"fmt"
	"net/http"
	"net/url"
)

// LogIn logs a user in as a browser does that a page has sent to the issuer: at is the address that it was
// redirected to. It returns the address that the issuer redirects it back to. client follows no redirects,
// and trusts the issuer.
func (i *Issuer) LogIn(client *http.Client, at, user, password string) (string, error) {
	form, err := i.redirect(client, at)
	if err != nil {
		return "", err
	}
	page, err := url.Parse(form)
	if err != nil {
		return "", err
	}
	answer, err := client.PostForm(i.URL+"/login/username", url.Values{
		"username": {user}, "password": {password}, "id": {page.Query().Get("authRequestID")},
	})
	if err != nil {
		return "", err
	}
	answer.Body.Close()
	if answer.StatusCode != http.StatusFound {
		return "", fmt.Errorf("issuer: log-in: %s", answer.Status)
	}
	return i.redirect(client, answer.Header.Get("Location"))
}

// redirect returns where an address redirects to.
func (i *Issuer) redirect(client *http.Client, at string) (string, error) {
	base, err := url.Parse(i.URL)
	if err != nil {
		return "", err
	}
	next, err := base.Parse(at)
	if err != nil {
		return "", err
	}
	answer, err := client.Get(next.String())
	if err != nil {
		return "", err
	}
	answer.Body.Close()
	if answer.StatusCode != http.StatusFound {
		return "", fmt.Errorf("issuer: %s: %s", next.Path, answer.Status)
	}
	to, err := base.Parse(answer.Header.Get("Location"))
	if err != nil {
		return "", err
	}
	return to.String(), nil
}
