"""What diagnostic programs print, as figures and a verdict. Pure: text in, `Reading` out."""
