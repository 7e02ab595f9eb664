def able(x):
    return ["?"]
