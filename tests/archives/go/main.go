// Writes the files of a folder into archives, with Go's own libraries: a tar of each form, and zips.
package main

import (
	"archive/tar"
	"archive/zip"
	"compress/gzip"
	"io"
	"io/fs"
	"log"
	"os"
	"path/filepath"
	"time"
)

func main() {
	root, out := os.Args[1], os.Args[2]
	forms := map[string]tar.Format{"ustar": tar.FormatUSTAR, "pax": tar.FormatPAX, "gnu": tar.FormatGNU}
	for name, form := range forms {
		writeTar(root, filepath.Join(out, "go-"+name+".tar.gz"), form)
	}
	writeFolder(root, filepath.Join(out, "go-folder.zip"))
	writeRaw(root, filepath.Join(out, "go-stored.zip"))
}

func writeTar(root, path string, form tar.Format) {
	file := create(path)
	packed := gzip.NewWriter(file)
	archive := tar.NewWriter(packed)
	walk(root, func(name string, info fs.FileInfo, data []byte) {
		header, err := tar.FileInfoHeader(info, "")
		check(err)
		header.Name, header.Format = name, form
		if form != tar.FormatPAX {
			header.ModTime, header.AccessTime, header.ChangeTime = info.ModTime().Truncate(time.Second), time.Time{}, time.Time{}
		}
		check(archive.WriteHeader(header))
		_, err = archive.Write(data)
		check(err)
	})
	check(archive.Close())
	check(packed.Close())
	check(file.Close())
}

// The sizes follow the content.
func writeFolder(root, path string) {
	file := create(path)
	archive := zip.NewWriter(file)
	check(archive.AddFS(os.DirFS(root)))
	check(archive.Close())
	check(file.Close())
}

func writeRaw(root, path string) {
	file := create(path)
	archive := zip.NewWriter(file)
	walk(root, func(name string, info fs.FileInfo, data []byte) {
		header, err := zip.FileInfoHeader(info)
		check(err)
		header.Name, header.Method = name, zip.Store
		writer, err := archive.CreateHeader(header)
		check(err)
		_, err = writer.Write(data)
		check(err)
	})
	check(archive.SetComment("made by a test"))
	check(archive.Close())
	check(file.Close())
}

func walk(root string, add func(name string, info fs.FileInfo, data []byte)) {
	check(filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		check(err)
		info, err := entry.Info()
		check(err)
		name, err := filepath.Rel(root, path)
		check(err)
		if entry.IsDir() {
			if name != "." {
				add(filepath.ToSlash(name)+"/", info, nil)
			}
			return nil
		}
		file, err := os.Open(path)
		check(err)
		defer file.Close()
		data, err := io.ReadAll(file)
		check(err)
		add(filepath.ToSlash(name), info, data)
		return nil
	}))
}

func create(path string) *os.File {
	file, err := os.Create(path)
	check(err)
	return file
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
