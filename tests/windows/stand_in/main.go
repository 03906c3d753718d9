// A stand-in for a program that a script of ours starts: it writes down how it was called, and does what the rules
// beside it say. Called "NAME.exe", it reads "NAME.json" and appends to "NAME.log". With "as-service SECONDS" it is a
// service, which takes so long to stop. Standard library only.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// The first rule whose expression is found in the arguments counts, joined with blanks. Without one, nothing is done.
type rule struct {
	Arguments string            `json:"arguments"`
	Prints    string            `json:"prints"`
	Code      int               `json:"code"`
	SleepS    int               `json:"sleep_s"`
	Runs      []string          `json:"runs"`
	Writes    map[string]string `json:"writes"`
	// How often the rule counts; 0 is always. Then the next one that fits does.
	Times int `json:"times"`
}

func main() {
	own, err := os.Executable()
	if err != nil {
		fail(err)
	}
	base := strings.TrimSuffix(own, ".exe")
	line := strings.Join(os.Args[1:], " ")
	earlier, _ := os.ReadFile(base + ".log")
	log(base, line)
	if len(os.Args) > 1 && os.Args[1] == "as-service" {
		seconds := 0
		if len(os.Args) > 2 {
			seconds, _ = strconv.Atoi(os.Args[2])
		}
		serve(time.Duration(seconds) * time.Second)
		return
	}
	var rules []rule
	if text, err := os.ReadFile(base + ".json"); err == nil {
		if err := json.Unmarshal(text, &rules); err != nil {
			fail(err)
		}
	}
	for _, one := range rules {
		fits := regexp.MustCompile(one.Arguments)
		if !fits.MatchString(line) || (one.Times > 0 && count(string(earlier), fits) >= one.Times) {
			continue
		}
		os.Exit(do(one))
	}
}

func count(log string, fits *regexp.Regexp) int {
	found := 0
	for _, line := range strings.Split(log, "\n") {
		if rest, ok := strings.CutPrefix(line, "called: "); ok && fits.MatchString(rest) {
			found++
		}
	}
	return found
}

func log(base, line string) {
	file, err := os.OpenFile(base+".log", os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		fail(err)
	}
	defer file.Close()
	credentials := "none"
	if os.Getenv("CRICTL_AUTH") != "" {
		credentials = "given"
	}
	fmt.Fprintf(file, "called: %s\ncredentials: %s\n", line, credentials)
}

func do(one rule) int {
	fmt.Print(one.Prints)
	for path, text := range one.Writes {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			fail(err)
		}
	}
	if len(one.Runs) > 0 {
		command := exec.Command(one.Runs[0], one.Runs[1:]...)
		command.Stdout, command.Stderr = os.Stdout, os.Stderr
		if err := command.Run(); err != nil {
			fail(err)
		}
	}
	time.Sleep(time.Duration(one.SleepS) * time.Second)
	return one.Code
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "stand-in:", err)
	os.Exit(97)
}
