module stand-in

go 1.20
